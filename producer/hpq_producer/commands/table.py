"""The table of commands, and what other tools call them."""

from __future__ import annotations

# group → command → (module, one line); its function has its name
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "init": (
            "hpq_producer.commands.make_sweep.init",
            "Write a sweep file from a script's options",
        ),
        "enqueue": ("hpq_producer.commands.make_sweep.enqueue", "Queue the trials of a sweep file"),
        "run": (
            "hpq_producer.commands.make_sweep.run",
            "Enqueue a sweep file, train on this machine and watch",
        ),
        "exec": (
            "hpq_producer.commands.make_sweep.exec:exec_program",
            "Run a script that calls wandb.sweep and wandb.agent",
        ),
        "plan": (
            "hpq_producer.commands.make_sweep.plan",
            "Show what a sweep file would run; write nothing",
        ),
        "try": (
            "hpq_producer.commands.make_sweep.try_trial:try_trial",
            "Run one trial in this terminal; store nothing",
        ),
    },
    "Machines": {
        "worker": (
            "hpq_producer.commands.machines.worker",
            "Start workers, which claim trials and train",
        ),
        "invite": (
            "hpq_producer.commands.machines.join:invite",
            "Print a token that lets another machine join",
        ),
        "join": (
            "hpq_producer.commands.machines.join",
            "Join a server by its token, and start a worker",
        ),
        "leave": (
            "hpq_producer.commands.machines.join:leave",
            "Leave the server; stop the workers of this machine",
        ),
        "slurm": (
            "hpq_producer.commands.machines.slurm",
            "Print a job script of workers for Slurm",
        ),
        "connect": (
            "hpq_producer.commands.machines.connect",
            "Connect this machine to a cluster's Redis",
        ),
        "data": (
            "hpq_producer.commands.admin.data",
            "Download CIFAR10 or MNIST for the built-in trainers",
        ),
    },
    "Look": {
        "watch": ("hpq_producer.commands.inspect.watch", "Show a sweep live"),
        "ls": ("hpq_producer.commands.inspect.ls", "List sweeps, newest first"),
        "show": ("hpq_producer.commands.inspect.show", "Show a sweep or a trial in full"),
        "logs": ("hpq_producer.commands.inspect.logs", "Print the log of a trial"),
        "summary": (
            "hpq_producer.commands.inspect.summary",
            "Rank the trials; show what mattered and what failed",
        ),
        "diff": (
            "hpq_producer.commands.inspect.diff",
            "Compare two sweeps, two trials, or one with your files",
        ),
        "best": (
            "hpq_producer.commands.inspect.best",
            "Print the best parameters; --confirm queues them again",
        ),
        "get": ("hpq_producer.commands.inspect.get", "Download a trial's file"),
        "dashboard": (
            "hpq_producer.commands.inspect.dashboard",
            "Serve live pages of all sweeps and workers",
        ),
        "report": (
            "hpq_producer.commands.inspect.report",
            "Write a page about sweeps as one HTML file",
        ),
        "results": (
            "hpq_producer.commands.inspect.results",
            "Print all trials or curves as a table, CSV or JSON",
        ),
        "export": (
            "hpq_producer.commands.inspect.export",
            "Write a sweep for TensorBoard, MLflow or Optuna",
        ),
        "workers": ("hpq_producer.commands.inspect.workers", "List live workers"),
        "wait": ("hpq_producer.commands.inspect.wait", "Wait until a sweep ends"),
        "doctor": (
            "hpq_producer.commands.admin.doctor",
            "Check the server, the workers and the data",
        ),
        "mcp": (
            "hpq_producer.commands.mcp.serve",
            "Serve the sweeps to an agent (Model Context Protocol)",
        ),
    },
    "Control": {
        "add": ("hpq_producer.commands.make_sweep.add", "Add trials to a sweep"),
        "pause": ("hpq_producer.commands.change.steer", "Start no further trial of a sweep"),
        "resume": ("hpq_producer.commands.change.steer", "Continue a paused or held sweep"),
        "stop": (
            "hpq_producer.commands.change.steer",
            "Finish running trials, cancel queued ones",
        ),
        "cancel": ("hpq_producer.commands.change.steer", "Stop a sweep or a trial now"),
        "retry": (
            "hpq_producer.commands.change.steer",
            "Queue failed or cancelled trials again",
        ),
        "set": (
            "hpq_producer.commands.change.set_limits:set_limits",
            "Change a sweep's limits, tags and note",
        ),
        "archive": (
            "hpq_producer.commands.admin.archive",
            "Write a sweep to one file, or restore it",
        ),
        "rm": ("hpq_producer.commands.change.rm", "Delete a sweep with all its results"),
    },
    "Operate a shared server": {
        "manifests": ("hpq_producer.commands.machines.manifests", "Print the Kubernetes manifests"),
        "drain": (
            "hpq_producer.commands.machines.drain",
            "Let workers finish their trials and claim no more",
        ),
        "user": (
            "hpq_producer.commands.admin.user",
            "List the owners of sweeps with their limits, or set limits",
        ),
        "redis-acl": (
            "hpq_producer.commands.admin.redis_acl",
            "Print ACL users for producers, workers, viewers and autoscalers",
        ),
        "audit": (
            "hpq_producer.commands.admin.audit",
            "Verify from its events that a sweep lost no trial",
        ),
    },
}
WHERE = {name: spec for group in COMMANDS.values() for name, spec in group.items()}
# commands of wandb, kubectl, ray and optuna → hpq's, one or several
ALIASES: dict[str, str] = {
    name: pair.partition(":")[0]
    for pair in (
        "ls:list,ps,sweeps,studies,jobs watch/ls/show:status show:describe,info,inspect"
        " rm:delete,remove,del watch:top,monitor,attach dashboard:ui worker:agent,start"
        " enqueue:sweep,submit,apply"
        " run:optimize,tune,launch,train results:trials best:best-trial,best-trials logs:log"
        " cancel:kill,terminate workers:agents,nodes set:edit connect:login,port-forward"
        " invite:token"
    ).split()
    for name in pair.partition(":")[2].split(",")
}
