"""All that touches wgpu: devices, buffers, pipelines, dispatches and their times."""
