"""pi 0.87.1; see pi_agent.py."""
from pi_agent import Pi, scenarios

NAME, VERSION = "pi-new", "0.87.1"
CLIENT = Pi("@earendil-works/pi-coding-agent", VERSION)
prepare, SCENARIOS = CLIENT.prepare, scenarios(CLIENT)
