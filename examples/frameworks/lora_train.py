"""transformers with LoRA: the Trainer reports to hpq as to W&B, without the wandb package."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--rank", type=int, default=8)
parser.add_argument("--model", default="")
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
seed = int(os.environ.get("HPQ_SEED", "0"))
set_seed(seed)

if args.model:
    base = AutoModelForCausalLM.from_pretrained(args.model)
else:
    tiny = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    base = AutoModelForCausalLM.from_config(tiny)
model = get_peft_model(base, LoraConfig(r=args.rank, task_type="CAUSAL_LM", fan_in_fan_out=True))
tokens = torch.arange(16).repeat(32, 1)  # your text, as tokens
data = [{"input_ids": row, "labels": row} for row in tokens]
checkpoints = os.environ.get("HPQ_CHECKPOINT_DIR") or tempfile.mkdtemp()  # without hpq: start anew
options = TrainingArguments(
    output_dir=checkpoints, learning_rate=args.lr, num_train_epochs=args.epochs,
    eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, report_to=["wandb"],
    disable_tqdm=True, seed=seed,
)  # fmt: skip
trainer = Trainer(model=model, args=options, train_dataset=data, eval_dataset=data)
is_resumed = any(Path(checkpoints).glob("checkpoint-*"))
trainer.train(resume_from_checkpoint=is_resumed)
model.save_pretrained(Path(os.environ.get("HPQ_OUT", "."), "adapter"))
