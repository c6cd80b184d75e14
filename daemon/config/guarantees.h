// A tenant's guaranteed memory, its share of the links, and the highest priority of its jobs.
#ifndef GEMINID_DAEMON_CONFIG_GUARANTEES_H_
#define GEMINID_DAEMON_CONFIG_GUARANTEES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/settings.h"

namespace geminid::config {

// Reads these values from one entry of `quotas` into `quota`, which has its limits already. Returns
// the problems: pairs of the key within the entry and what is wrong with it.
std::vector<std::pair<std::string, std::string>> ReadGuarantees(const v1::TenantQuota& line,
                                                                TenantQuota* quota);

// INVALID_ARGUMENT if all tenants together are guaranteed more memory than there is. The memory of
// `settings` must have been filled in (FillInMemory).
absl::Status CheckGuarantees(const Settings& settings);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_GUARANTEES_H_
