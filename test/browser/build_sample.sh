#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the program that writes what the browser tests open.
set -eu
cd "$(dirname "$0")/../.."
make -s build/plain/view_sample
