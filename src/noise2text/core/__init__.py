"""What every room stands on: errors, configuration, devices, files, locks and random numbers."""
