#!/bin/sh
# Installed by `ctrlz install cline`, once per event. `ctrlz uninstall cline` removes it.
exec ctrlz hook cline
