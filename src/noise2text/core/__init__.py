"""What all packages use: errors, configuration, devices, files, locks, random numbers and signals."""
