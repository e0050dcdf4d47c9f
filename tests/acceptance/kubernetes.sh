# A lab on Kubernetes: the first day, the second day, the bad day. $IMAGE is the image of the workers.

cat >train.py <<'END'
import argparse
import os
import pathlib
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
saved = pathlib.Path(os.environ["HPQ_CHECKPOINT_DIR"], "step")
start = int(saved.read_text()) if saved.exists() else 0
print("starts at", start, flush=True)
for step in range(start, 20):
    print(f"step={step} val_loss={abs(lr - 0.03) + 0.5**step}", flush=True)
    draft = saved.with_name(".draft")
    draft.write_text(str(step + 1))
    draft.rename(saved)
    time.sleep(0.5)
pathlib.Path(os.environ["HPQ_OUT"], "model.txt").write_text(str(lr))
END
cat >sweep.yaml <<'END'
name: lab
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.1, 0.03, 0.01, 0.003]}
END
kube() { kubectl -n hpq "$@"; }

# --- The first day: Redis and workers, a sweep, two pods ----------------------------------------
hpq manifests --create-namespace --image "$IMAGE" --gpus 0 | kubectl apply -f -
hpq manifests --secrets | kubectl create -f -
kube rollout status deployment/hpq-worker --timeout 300s
hpq connect
hpq doctor --cluster
hpq plan sweep.yaml
first=$(hpq enqueue sweep.yaml)
kube scale deployment/hpq-worker --replicas=2
hpq watch --once
hpq wait
is 'd["param"]["lr"] == 0.03' hpq best -o json
prints 'val_loss=' hpq logs "$first/1"
is 'len(d) == 2' hpq workers -o json
hpq summary
hpq connect --status

# --- The second day: a file for the cluster, a store, a viewer, a rolling update ----------------
cat >cluster.yaml <<END
image: $IMAGE
queues:
  default: {gpus: 0}
store: {size: 1Gi}
settings: {HPQ_LEASE_S: 15}
END
hpq manifests -f cluster.yaml | kubectl apply -f -
kube rollout status deployment/hpq-worker --timeout 300s
kubectl diff -f <(hpq manifests -f cluster.yaml) | grep -v replicas | grep -E '^[+-] ' && exit 1
hpq connect
kube scale deployment/hpq-worker --replicas=2
second=$(hpq enqueue sweep.yaml --new --name second)
soon 'd["running"] > 0' hpq show "$second" -o json
hpq pause "$second"
hpq resume "$second"
hpq set "$second" max_parallel=2 priority=3
kube rollout restart deployment/hpq-worker
kube rollout status deployment/hpq-worker --timeout 300s
hpq wait "$second"
is 'd["finished"] == 4 and d["failed"] == 0' hpq wait "$second" -o json
pod=$(kube get pods -l app.kubernetes.io/name=hpq-worker -o 'jsonpath={.items[0].metadata.name}')
hpq drain "$pod" --timeout 120
hpq drain "$pod" --undo
hpq audit "$second"
hpq results "$second" -o csv >results.csv
hpq report "$second" --out page.html
hpq connect --stop
hpq connect --role viewer
is 'd["finished"] == 4' hpq show "$second" -o json
expect 4 hpq pause "$second"
hpq connect --stop
hpq connect

# --- The bad day: a pod is killed, Redis is killed, an image is not there ------------------------
third=$(hpq enqueue sweep.yaml --new --name third)
soon 'd["running"] > 0' hpq show "$third" -o json
soon 'd["step"] > 3' hpq show "$third/1" -o json
kube delete pod -l app.kubernetes.io/name=hpq-worker --force --grace-period=0
kube delete pod hpq-redis-0 --force --grace-period=0
kube rollout status statefulset/hpq-redis --timeout 300s
hpq connect
hpq wait "$third"
is 'd["finished"] == 4 and d["failed"] == 0' hpq wait "$third" -o json
hpq audit "$third"
kube set image deployment/hpq-worker "*=registry.invalid/absent:1"
kube scale deployment/hpq-worker --replicas=0
kube scale deployment/hpq-worker --replicas=1
fourth=$(hpq enqueue sweep.yaml --new --name fourth)
pods_have_no_image() { hpq ls; hpq workers; hpq watch --once; }
for _ in $(seq 60); do pods_have_no_image 2>&1 | grep 'ImagePull' && break; sleep 2; done
pods_have_no_image 2>&1 | grep 'ImagePull'
expect 5 hpq wait "$fourth" --timeout 3
hpq manifests -f cluster.yaml | kubectl apply -f -
kube rollout status deployment/hpq-worker --timeout 300s
hpq wait "$fourth"
kube patch networkpolicy hpq-worker-to-redis -p '{"spec": {"egress": []}}'
kube delete pod -l app.kubernetes.io/name=hpq-worker
for _ in $(seq 60); do hpq workers 2>&1 | grep 'redis-away' && break; sleep 2; done
hpq workers 2>&1 | grep 'redis-away'
hpq manifests -f cluster.yaml | kubectl apply -f -
kube rollout status deployment/hpq-worker --timeout 300s
hpq archive "$fourth" fourth.hpq
hpq rm "$fourth" --yes
hpq archive --restore fourth.hpq
is 'd["finished"] == 4' hpq show "$fourth" -o json
hpq connect --stop
kubectl delete namespace hpq
