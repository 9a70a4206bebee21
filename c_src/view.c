/* SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include <string.h>

extern const struct ember_view ember_view_html;
extern const struct ember_view ember_view_brendan_gregg;
extern const struct ember_view ember_view_speedscope;
extern const struct ember_view ember_view_callgrind;
extern const struct ember_view ember_view_svg;
extern const struct ember_view ember_view_firefox;
extern const struct ember_view ember_view_perf_script;
extern const struct ember_view ember_view_chrome;
extern const struct ember_view ember_view_pprof;
extern const struct ember_view ember_view_perf;
extern const struct ember_view ember_view_perf_symbols;
extern const struct ember_view ember_view_ember;

static const struct ember_view *const views[] = {
    &ember_view_html,  &ember_view_brendan_gregg, &ember_view_speedscope,   &ember_view_callgrind,
    &ember_view_svg,   &ember_view_firefox,       &ember_view_perf_script,  &ember_view_chrome,
    &ember_view_pprof, &ember_view_perf,          &ember_view_perf_symbols, &ember_view_ember,
};

const struct ember_view *ember_view_at(unsigned i)
{
    return i < sizeof views / sizeof views[0] ? views[i] : NULL;
}

const struct ember_view *ember_view_find(const char *name)
{
    for (unsigned i = 0; ember_view_at(i); i++)
        if (strcmp(views[i]->name, name) == 0)
            return views[i];
    return NULL;
}
