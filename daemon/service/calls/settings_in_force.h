// The settings in force: those of the start, with the changes of reloads.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_SETTINGS_IN_FORCE_H_
#define GEMINID_DAEMON_SERVICE_CALLS_SETTINGS_IN_FORCE_H_

#include <mutex>
#include <utility>

#include "daemon/config/settings.h"

namespace geminid::service {

// Thread-safe.
class SettingsInForce {
 public:
  explicit SettingsInForce(config::Settings settings) : settings_(std::move(settings)) {}

  config::Settings Get() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return settings_;
  }
  void Set(config::Settings settings) {
    std::lock_guard<std::mutex> lock(mutex_);
    settings_ = std::move(settings);
  }

 private:
  mutable std::mutex mutex_;
  config::Settings settings_;  // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_SETTINGS_IN_FORCE_H_
