# A lab on Slurm: the first day, the second day, the bad day. Typed on the login node.

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
for step in range(start, 20):
    print(f"step={step} val_loss={abs(lr - 0.03) + 0.5**step}", flush=True)
    draft = saved.with_name(".draft")
    draft.write_text(str(step + 1))
    draft.rename(saved)
    time.sleep(0.3)
END
cat >sweep.yaml <<'END'
name: lab
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.1, 0.03, 0.01, 0.003]}
END
jobs_of() { squeue -h -r -j "$1" -o %t 2>/dev/null || true; }
# hurry JOB: Slurm would let a requeued job wait for two minutes.
hurry() { scontrol update "JobId=$1" StartTime=now 2>/dev/null || true; }

# --- The first day: Redis as a job, a sweep, an array of workers ---------------------------------
redis=$(hpq slurm --redis --time 1:00:00 | sbatch --parsable)
until hpq enqueue sweep.yaml; do sleep 1; done
array=$(hpq slurm --partition gpu --time 10:00 --jobs 2 | sbatch --parsable)
hpq watch --once
hpq wait
is 'd["param"]["lr"] == 0.03' hpq best -o json
is 'd["state"] == "finished" and d["finished"] == 4' hpq show -o json
hpq workers
prints val_loss hpq logs 1
hpq doctor || true

# --- The second day: another sweep for the same jobs, a pause, a requeue of the scheduler --------
second=$(hpq enqueue sweep.yaml --new --name second)
soon 'd["running"] > 0' hpq show "$second" -o json
hpq pause "$second"
hpq resume "$second"
task=$(squeue -h -r -j "$array" -t R -o %i | sed -n 1p)
scontrol requeue "$task"
hurry "$task"
hpq wait "$second"
is 'd["finished"] == 4 and d["failed"] == 0' hpq wait "$second" -o json
hpq audit "$second"
hpq results "$second" -o csv >results.csv
hpq report "$second" --out page.html

# --- The bad day: Redis is requeued, the workers are cancelled; nothing is lost -------------------
third=$(hpq enqueue sweep.yaml --new --name third)
soon 'd["running"] > 0' hpq show "$third" -o json
scontrol requeue "$redis"
until ! hpq ls >ls.log 2>&1; do sleep 0.5; done
for _ in $(seq 90); do hurry "$redis"; hpq ls >ls.log 2>&1 && break; sleep 1; done
scancel "$array"
while [ -n "$(jobs_of "$array")" ]; do sleep 0.5; done
again=$(hpq slurm --partition gpu --time 10:00 --jobs 2 | sbatch --parsable)
hpq wait "$third"
is 'd["finished"] == 4 and d["failed"] == 0' hpq wait "$third" -o json
hpq audit "$third"
is 'len(d) == 3' hpq ls -o json
scancel "$again"
scancel "$redis"
while [ -n "$(jobs_of "$redis")$(jobs_of "$again")" ]; do sleep 0.5; done
