"""pi 0.58.3; see pi_agent.py."""
from pi_agent import Pi, scenarios

NAME, VERSION = "pi-old", "0.58.3"
CLIENT = Pi("@mariozechner/pi-coding-agent", VERSION)
prepare, SCENARIOS = CLIENT.prepare, scenarios(CLIENT)
FEW = ("whole turn", "beyond", "uninstalled")
