#include "daemon/service/tenants/tenant_log.h"

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"

namespace geminid::service {

void TenantLog::Write(const std::string& tenant, os::LogLevel level, const std::string& message,
                      std::vector<os::LogField> fields) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = core::Time::FromNanoseconds(os::MonotonicNanoseconds());
    rates_.SetRate(limits_->RateOf(config::kLogRate, config::kLogBurstSeconds));
    if (!rates_.Take(tenant, now)) {
      limits_->Count(config::kLogRate.key, tenant);
      ++left_out_[tenant];
      return;
    }
    if (const auto node = left_out_.extract(tenant); !node.empty()) {
      fields.push_back({"lines_left_out", absl::StrCat(node.mapped())});
      fields.push_back({"advice", absl::StrCat("raise ", config::kLogRate.key,
                                               " in the daemon's configuration")});
    }
  }
  os::Log(level, message, fields);
}

}  // namespace geminid::service
