"""The ops that webnorm contains, one folder per op or family; `webnorm.op.registry` loads them."""
