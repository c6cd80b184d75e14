#include "daemon/metrics/call_times.h"

#include "daemon/metrics/catalogue.h"

namespace geminid::metrics {

void CallTimes::Add(const std::string& path, core::Duration took, absl::StatusCode code) {
  const size_t service = path.rfind('.');
  const std::string method = service == std::string::npos ? path : path.substr(service + 1);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!calls_.contains(method) && calls_.size() >= kMaxMethods) return;
  CallReading& call = calls_[method];
  call.seconds.Add(took);
  if (code != absl::StatusCode::kOk) ++call.errors[absl::StatusCodeToString(code)];
}

std::map<std::string, CallReading> CallTimes::Read() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

}  // namespace geminid::metrics
