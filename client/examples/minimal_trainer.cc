// The smallest trainer: pulls one matrix towards ones. Its state lives in host memory; the device
// has room for what an operator needs.
#include <algorithm>
#include <cstdio>
#include <span>

#include "geminid/connect.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace zero = geminid::zero;

absl::Status Train() {
  const auto rank = geminid::collectives::FromEnvironment();  // torchrun's, mpirun's, or alone
  if (!rank.ok()) return rank.status();
  const auto communicator = geminid::collectives::Connect(*rank);
  if (!communicator.ok()) return communicator.status();
  const auto session = geminid::Session::Connect(  // starts a daemon if none runs
      {.rank = rank->rank, .world_size = rank->world_size, .device_memory_bytes = 24 << 20});
  if (!session.ok()) return session.status();
  const auto engine =
      zero::Engine::Create(session->get(), communicator->get(), {{.name = "w", .shape = {64, 64}}},
                           {.data_type = zero::DataType::kFloat32});
  if (!engine.ok()) return engine.status();
  const auto fill = [](zero::ParameterId, std::span<float> w) { std::ranges::fill(w, 0.0f); };
  if (auto status = (*engine)->Initialize(fill); !status.ok()) return status;

  constexpr zero::ParameterId kW{0};
  for (int step = 0; step < 5; ++step) {
    if (auto status = (*engine)->BeginMicroBatch(); !status.ok()) return status;
    {
      const auto use = (*engine)->Use(zero::Pass::kForward, {{kW}});  // on the device meanwhile
      if (!use.ok()) return use.status();
      std::printf("w = %.3f\n", *reinterpret_cast<const float*>(use->Weight(kW)));
    }
    {
      auto use = (*engine)->Use(zero::Pass::kBackward, {{kW}});
      if (!use.ok()) return use.status();
      auto* gradient = reinterpret_cast<float*>(use->Gradient(kW));  // takes the weight's place
      for (int i = 0; i < 64 * 64; ++i) gradient[i] -= 1.0f;         // of half of (w - 1) squared
      if (auto status = use->GradientWritten(kW); !status.ok()) return status;
    }
    const auto result = (*engine)->Step({.learning_rate = 0.1});
    if (!result.ok()) return result.status();
  }
  return absl::OkStatus();
}

int main() {
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
