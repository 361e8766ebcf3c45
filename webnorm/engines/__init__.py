"""Engines that run WGSL: browsers, node and Deno, found and started on this machine."""
