"""The public test cases of torch, ONNX and onnxruntime, computed by webnorm's functions of their names."""
