#!/bin/sh
# `ctrlz install cline` puts this there, once per event; `ctrlz uninstall cline` removes it.
exec ctrlz hook cline
