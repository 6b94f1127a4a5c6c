"""Training: Lightning module and data module, callbacks, checkpoints, pre-training queries."""
