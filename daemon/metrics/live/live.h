// The daemon's page for people: shows live, from the metrics it serves, what the daemon holds.
#ifndef GEMINID_DAEMON_METRICS_LIVE_LIVE_H_
#define GEMINID_DAEMON_METRICS_LIVE_LIVE_H_

#include <string_view>

namespace geminid::metrics {

// live.html as one piece of HTML. The page loads only /metrics, from the server that served the
// page, and shows what it finds there.
std::string_view LivePage();

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_LIVE_LIVE_H_
