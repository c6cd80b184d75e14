#include <cstdio>
#include <cstdlib>

#include "geminid/connect.h"
#include "geminid/session.h"
#include "geminid/zero.h"

void Check(const absl::Status& status) {
  if (!status.ok()) std::exit((std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1));
}
template <typename T>
T Check(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}
int main() {
  namespace zero = geminid::zero;
  const auto rank = Check(geminid::collectives::FromEnvironment());  // torchrun's, or alone
  const auto ranks = Check(geminid::collectives::Connect(rank));
  const auto session = Check(geminid::Session::Connect(  // starts a daemon if none runs
      {.rank = rank.rank, .world_size = rank.world_size, .device_memory_bytes = 24 << 20}));
  const auto engine =
      Check(zero::Engine::Create(session.get(), ranks.get(), {{.name = "w", .shape = {64, 64}}},
                                 {.data_type = zero::DataType::kFloat32}));
  const zero::ParameterId kW{0};  // of zeros; Engine::Initialize sets other values
  for (int step = 0; step < 5; ++step) {
    Check(engine->BeginMicroBatch());
    auto use = Check(engine->Use(zero::Pass::kForward, {{kW}}));  // on the device meanwhile
    std::printf("w = %.3f\n", *reinterpret_cast<const float*>(use.Weight(kW)));
    Check(use.Finish());
    use = Check(engine->Use(zero::Pass::kBackward, {{kW}}));
    auto* gradient = reinterpret_cast<float*>(use.Gradient(kW));  // takes the weight's place
    for (int i = 0; i < 64 * 64; ++i) gradient[i] -= 1.0f;        // of half of (w - 1) squared
    Check(use.GradientWritten(kW));
    Check(use.Finish());
    Check(engine->Step({.learning_rate = 0.1}));
  }
}
