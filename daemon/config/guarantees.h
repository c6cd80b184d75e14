// What a tenant is guaranteed, its part of the links, and how high its jobs' priority may be.
#ifndef GEMINID_DAEMON_CONFIG_GUARANTEES_H_
#define GEMINID_DAEMON_CONFIG_GUARANTEES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/settings.h"

namespace geminid::config {

// Reads them from a line of the quotas, whose limits are in `quota` already. The keys within the
// line that are wrong, and how.
std::vector<std::pair<std::string, std::string>> ReadGuarantees(const v1::TenantQuota& line,
                                                                TenantQuota* quota);

// INVALID_ARGUMENT where all tenants together are guaranteed more than there is. `settings` has its
// memory filled in.
absl::Status CheckGuarantees(const Settings& settings);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_GUARANTEES_H_
