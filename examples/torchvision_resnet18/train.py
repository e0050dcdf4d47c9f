"""Train torchvision's resnet18 on CIFAR10 by a plain script that does not import hpq.

By hand: `python train.py --data DIR --epochs 1 --images 512`. DIR contains directories train/ and
test/ of images by class, or cifar-10-batches-py from `hpq data cifar10 DIR` or torchvision. On a
GPU the script computes in bfloat16.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import CIFAR10, ImageFolder
from torchvision.models import resnet18
from torchvision.transforms import v2

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--images", type=int, default=50_000, help="for training; a fifth for the test")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
numbers = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
numbers += [v2.Normalize((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))]
crops = [v2.RandomCrop(32, padding=4, padding_mode="reflect"), v2.RandomHorizontalFlip()]
transforms = {"train": v2.Compose([*crops, *numbers]), "test": v2.Compose(numbers)}
counts = {"train": args.images, "test": max(1, args.images // 5)}


def images(part):
    if (folder := Path(args.data) / part).is_dir():
        found = ImageFolder(folder, transforms[part])
    else:
        found = CIFAR10(args.data, train=part == "train", transform=transforms[part])
    some = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
    return Subset(found, some[: counts[part]].tolist())


train_set, test_set = images("train"), images("test")
train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
test_loader = DataLoader(test_set, 500)

model = resnet18(num_classes=10)
model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)  # images of 32 pixels, not of 224
model.maxpool = nn.Identity()
model = model.to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(
    model.parameters(), args.lr, args.momentum, weight_decay=5e-4, nesterov=args.momentum > 0
)
steps = args.epochs * len(train_loader)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, args.lr, total_steps=steps, cycle_momentum=False
)
amp = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")

for _ in range(args.epochs):
    model.train()
    for images, labels in train_loader:
        images, labels = images.to(device), labels.to(device)
        with amp:
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    hits = 0
    with torch.no_grad(), amp:
        for images, labels in test_loader:
            hits += (model(images.to(device)).argmax(1).cpu() == labels).sum().item()
    print(f"loss={loss.item():.4f}\nacc={hits / len(test_set):.4f}", flush=True)
