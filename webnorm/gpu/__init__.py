"""Devices, buffers, pipelines, dispatches and their times, through wgpu."""
