"""Devices, buffers, pipelines, dispatches and timing, through wgpu."""
