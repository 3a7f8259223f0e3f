#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Some seconds of what `make soak` does for ten minutes.
SOAK_SECONDS=${SOAK_SECONDS:-9} exec "$(dirname "$0")/../soak/soak.sh"
