// One reading of the daemon as Prometheus metrics. Pure: the same reading gives the same page.
#ifndef GEMINID_DAEMON_METRICS_FAMILIES_H_
#define GEMINID_DAEMON_METRICS_FAMILIES_H_

#include <string>

#include "daemon/metrics/page.h"
#include "daemon/metrics/reading.h"

namespace geminid::metrics {

// The text of the page.
std::string TextPage(const Reading& reading);

// Parts of the page, each in a file of its own.
void AddMemory(const Reading& reading, Page* page);
void AddTenants(const Reading& reading, Page* page);
void AddSessions(const Reading& reading, Page* page);

// Values of the labels `tier` and `device`; `device` is empty unless the tier is the device tier.
std::string TierLabel(const core::Account& account);
std::string DeviceLabel(const core::Account& account);

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_FAMILIES_H_
