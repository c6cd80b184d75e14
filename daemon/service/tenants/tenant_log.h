// Limits the log lines that clients can cause, per tenant, and counts those left out.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_TENANT_LOG_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_TENANT_LOG_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/core/transfers/token_bucket.h"
#include "daemon/os/log.h"
#include "daemon/service/tenants/limits.h"

namespace geminid::service {

// Thread-safe.
class TenantLog {
 public:
  // `limits` outlives it.
  explicit TenantLog(Limits* limits) : limits_(limits) {}

  // Writes the line, or counts it. The next line of the tenant says how many were left out.
  void Write(const std::string& tenant, os::LogLevel level, const std::string& message,
             std::vector<os::LogField> fields);

 private:
  Limits* const limits_;
  std::mutex mutex_;
  core::TenantRates rates_{core::Rate{}};     // guarded by mutex_
  std::map<std::string, uint64_t> left_out_;  // guarded by mutex_; of tenants that have some
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_TENANT_LOG_H_
