"""The mathematics: schedules, noise, losses and the walk from noise to text."""
