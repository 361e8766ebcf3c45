"""The ops that come with webnorm, one folder each or one per family; `webnorm.op.registry` loads them."""
