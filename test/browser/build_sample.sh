#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds build/html_sample, which writes the pages that the browser tests open.
set -eu
cd "$(dirname "$0")/../.."
make -s build/plain/libplain.a
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow \
    -Wconversion -Wvla -Werror -Ic_src -Ibuild -o build/html_sample \
    test/c/html_sample.c build/plain/libplain.a
