# A researcher with a laptop or 1–8 GPUs: the first day, the second day, the bad day.

# --- The first day: a script of one's own, a draft, a look at the plan, a run -------------------
cat >train.py <<'END'
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=32)
args = parser.parse_args()
for epoch in range(4):
    print(f"val_loss={abs(args.lr - 0.03) + 1 / args.width + 0.5**epoch}")
END
hpq init train.py
expect 2 hpq init train.py # it overwrites nothing
hpq plan sweep.yaml
is 'd["trials"] == 20' hpq plan sweep.yaml -o json
prints 'val_loss=' hpq try sweep.yaml --set lr=0.05
hpq run sweep.yaml --workers 2 --set run_cap=8
is 'd["state"] == "finished" and d["finished"] == 8' hpq wait -o json
hpq best
prints '--lr=' hpq best --args
hpq best --yaml >best.yaml
hpq summary
hpq results -o csv >results.csv
[ "$(wc -l <results.csv)" = 9 ]
hpq results --where 'width <= 32' --sort objective --top 3
prints val_loss hpq results --history -o jsonl
hpq show 3
hpq show
prints 'val_loss=' hpq logs 3
hpq diff
hpq ls
hpq watch --once
hpq report --out page.html
grep -q '<html' page.html
is 'len(d) == 1' hpq ls -o json

# A W&B file and script, unchanged; bayes, hyperband.
mkdir wandb-day && cd wandb-day
cat >train.py <<'END'
import wandb

with wandb.init(config={"lr": 0.1, "epochs": 6}) as run:
    for epoch in range(run.config.epochs):
        run.log({"val_loss": abs(run.config.lr - 0.03) + 1 / (epoch + 1), "epoch": epoch})
END
cat >sweep.yaml <<'END'
program: train.py
name: bees
method: bayes
run_cap: 14
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {min: 0.001, max: 0.1}
early_terminate: {type: hyperband, min_iter: 3}
END
hpq run sweep.yaml
is 'd["finished"] + d["pruned"] == 14' hpq wait bees -o json
cat >agent.py <<'END'
import wandb


def train():
    with wandb.init() as run:
        wandb.log({"loss": run.config.x**2})


sweep_id = wandb.sweep(
    {"method": "grid", "metric": {"name": "loss"}, "parameters": {"x": {"values": [1, 2, 3]}}}
)
wandb.agent(sweep_id, function=train)
print("best x", wandb.Api().sweep(sweep_id).best_run().config["x"])
END
prints 'best x 1' hpq exec python agent.py
cd ..

# --- The second day: the queue, edits, more trials, a winner ------------------------------------
cat >slow.py <<'END'
import argparse
import os
import pathlib
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
lr = parser.parse_args().lr
saved = pathlib.Path(os.environ["HPQ_CHECKPOINT_DIR"], "step")
start = int(saved.read_text()) if saved.exists() else 0
for step in range(start, 12):
    print(f"step={step} acc={1 - abs(lr - 0.03) - 0.5**step}", flush=True)
    draft = saved.with_name(".draft")
    draft.write_text(str(step + 1))
    draft.rename(saved)
    time.sleep(0.2)
pathlib.Path(os.environ["HPQ_OUT"], "model.txt").write_text(str(lr))
END
cat >slow.yaml <<'END'
name: slow
program: slow.py
method: grid
metric: {name: acc, goal: maximize}
parameters:
  lr: {values: [0.1, 0.03, 0.01, 0.003]}
END
slow=$(hpq enqueue slow.yaml --tag day-2)
expect 0 hpq enqueue slow.yaml # the same again: nothing new
is 'len([s for s in d if s["name"] == "slow"]) == 1' hpq ls -o json
hpq pause "$slow"
is 'd["state"] == "paused"' hpq show "$slow" -o json
hpq resume "$slow"
hpq worker --workers 2 --until-idle 3s &
worker=$!
soon 'd["running"] > 0' hpq show "$slow" -o json
hpq workers
is 'len(d) == 2' hpq workers -o json
hpq watch "$slow" --once
hpq logs "$slow/1" -n 2
hpq set "$slow" priority=5 max_parallel=2 note='the slow one'
hpq wait "$slow"
wait $worker
is 'd["param"]["lr"] == 0.03' hpq best "$slow" -o json
prints model.txt hpq get "$slow/2"
hpq get "$slow/2" model.txt --out model.txt
grep -qx 0.03 model.txt
hpq retry "$slow/1" --yes
hpq run "$slow" --workers 1
is 'd["finished"] == 4' hpq wait "$slow" -o json

# An edited script is another sweep; results of the same code are copied.
sed 's/values: \[0.1, /values: [0.3, 0.1, /' slow.yaml >wide.yaml
hpq run wide.yaml --name wide --reuse
is 'd["finished"] == 5' hpq wait wide -o json
sed -i 's/0.5\*\*step/0.4**step/' slow.py
hpq run slow.yaml --name edited --workers 2
hpq diff "$slow" edited
hpq best "$slow" edited -n 2
hpq best "$slow" --confirm 2
hpq run slow-confirm
hpq summary "$slow"
python - "$slow" <<'END'
import sys

import hpq

sweep = hpq.Sweep(sys.argv[1])
assert sweep.best().params["lr"] == 0.03
assert len(sweep.trials()) == 4
END
hpq export "$slow" --to optuna study.journal
hpq archive "$slow" slow.hpq
hpq rm "$slow" --yes
expect 4 hpq show "$slow"
hpq archive --restore slow.hpq
is 'd["finished"] == 4' hpq show "$slow" -o json
hpq rm --older 0 --yes
is 'd == []' hpq ls -o json

# --- The bad day --------------------------------------------------------------------------------
sed 's/method: grid/method: gird/' slow.yaml >typo.yaml
expect 2 hpq plan typo.yaml
expect 2 hpq run absent.yaml
expect 4 hpq show nothing-of-this-name
HPQ_REDIS_URL=redis://127.0.0.1:1/0 expect 3 hpq ls

# The script is wrong: the sweep is held. The data was: retry.
cat >bad.py <<'END'
import os
import sys

if not os.path.exists(os.path.expanduser("~/mended")):
    sys.exit("no data")
print("acc=1")
END
sed 's/slow/bad/; s/0.1, 0.03, 0.01, 0.003/1, 2, 3, 4, 5, 6, 7, 8/' slow.yaml >bad.yaml
sed -i 's/program: slow.py/program: bad.py/' bad.yaml
expect 5 hpq run bad.yaml --workers 1
is 'd["state"] == "held"' hpq show bad -o json
prints 'no data' hpq logs bad
touch ~/mended
hpq retry bad --yes
expect 0 hpq run bad
is 'd["finished"] == 8' hpq wait bad -o json

# A worker, its machine and the server die; Ctrl-C; then the sweep goes on, from checkpoints.
kill=$(hpq enqueue slow.yaml --name kill --new)
export HPQ_LEASE_S=6
setsid hpq worker --workers 1 &
worker=$!
soon 'd["step"] > 2' hpq show "$kill/1" -o json
kill -9 -- -$worker
python - <<'END'
import os
import signal

import psutil

killed = 0
for keeper in psutil.process_iter(["cmdline"]):
    if os.path.expanduser("~/.hpq") in (keeper.info["cmdline"] or []):
        for server in keeper.children():
            server.send_signal(signal.SIGKILL)
            killed += 1
assert killed == 1
END
expect 0 hpq run "$kill" --workers 2
is 'd["finished"] == 4 and d["failed"] == 0' hpq wait "$kill" -o json
hpq audit "$kill"
set -m # without job control, a job in the background ignores Ctrl-C
hpq run slow.yaml --name interrupted --new --workers 1 &
run=$!
set +m
soon 'd["running"] > 0' hpq show interrupted -o json
kill -INT "$run"
wait "$run" || true
expect 0 hpq run interrupted
is 'd["finished"] == 4' hpq wait interrupted -o json
hpq cancel interrupted --yes || true
hpq doctor
hpq doctor --settings
