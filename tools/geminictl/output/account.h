// The account that bytes belong to, as tables name it: "host", "disk", "device 1".
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_ACCOUNT_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_ACCOUNT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/shm/types.h"

namespace geminid::ctl {

// The account of a TierLedger, LedgerEntry or PoolInfo.
template <typename Message>
std::string AccountName(const Message& message) {
  const std::string tier = shm::Name(static_cast<shm::Tier>(message.tier()));
  return message.has_device() ? absl::StrCat(tier, " ", message.device()) : tier;
}

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_ACCOUNT_H_
