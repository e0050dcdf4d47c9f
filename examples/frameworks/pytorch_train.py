"""PyTorch: a loop that reports each epoch, resumes from a checkpoint and keeps the model."""

import argparse
import os
import tempfile
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(int(os.environ.get("HPQ_SEED", "0")))
inputs = torch.rand(512, 4, device=device)
targets = inputs.sin().sum(1, keepdim=True)  # your data set
model = torch.nn.Sequential(
    torch.nn.Linear(4, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, 1)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

folder = os.environ.get("HPQ_CHECKPOINT_DIR") or tempfile.mkdtemp()  # without hpq: start anew
checkpoint = Path(folder, "state.pt")
first = 0
if checkpoint.exists():  # an earlier attempt of this trial was interrupted
    state = torch.load(checkpoint, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    optimizer.param_groups[0]["lr"] = args.lr  # the checkpoint may be of a trial with another lr
    first = state["epoch"] + 1

for epoch in range(first, args.epochs):
    for batch in torch.randperm(400, device=device).split(50):
        loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        val_loss = torch.nn.functional.mse_loss(model(inputs[400:]), targets[400:])
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, checkpoint.with_suffix(".tmp"))
    checkpoint.with_suffix(".tmp").replace(checkpoint)
    print(f"epoch={epoch} loss={loss.item()} val_loss={val_loss.item()}", flush=True)

torch.save(model.state_dict(), Path(os.environ.get("HPQ_OUT", "."), "model.pt"))
