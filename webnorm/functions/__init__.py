"""Norms under the names of torch and ONNX: functions and modules that call the ops of webnorm."""
