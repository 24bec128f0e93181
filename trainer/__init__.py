"""The compact PyTorch trainer."""
