// The page of the daemon for people: what it holds, live, from the metrics that it serves.
#ifndef GEMINID_DAEMON_METRICS_LIVE_LIVE_H_
#define GEMINID_DAEMON_METRICS_LIVE_LIVE_H_

#include <string_view>

namespace geminid::metrics {

// HTML in one piece, live.html: it loads nothing but /metrics of the server that it is from, and
// shows what is there.
std::string_view LivePage();

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_LIVE_LIVE_H_
