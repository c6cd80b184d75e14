// The first message of a client.
#include <span>

#include "daemon/service/calls/hello.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using geminid::fuzz::Require;
  const auto spec = geminid::service::CheckHello(std::as_bytes(std::span(data, size)));
  if (!spec.ok()) return 0;
  Require(spec->rank >= 0 && spec->rank < spec->world_size, "a rank is one of its world");
  Require(!spec->job.empty() && spec->job.size() < 64, "a job has a short name");
  Require(spec->run.size() < 64, "a run has a short name");
  for (const char c : spec->run) Require(c >= ' ' && c <= '~', "a run's name can be shown");
  for (const char c : spec->client) Require(c >= ' ' && c <= '~', "a client's name can be shown");
  return 0;
}
