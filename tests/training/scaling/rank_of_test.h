// A small model's state, of which a rank has its shards.
#ifndef GEMINID_TESTS_TRAINING_SCALING_RANK_OF_TEST_H_
#define GEMINID_TESTS_TRAINING_SCALING_RANK_OF_TEST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/scaling/state_image.h"

namespace geminid::trainer {

inline constexpr uint64_t kElements = 10;

// Two parameters of ten elements, of which one rank of several has its run; the second is frozen.
class RankOfTest final : public zero::ModelState {
 public:
  RankOfTest(uint64_t rank, uint64_t ranks, zero::DataType type)
      : first_(kElements * rank / ranks), end_(kElements * (rank + 1) / ranks), type_(type) {}

  std::vector<float>& At(zero::ParameterId id, zero::StateKind kind) {
    std::vector<float>& values = values_[{static_cast<uint32_t>(id), kind}];
    values.resize(kElements);
    return values;
  }

  absl::Status Initialize(const Fill&) override { return absl::OkStatus(); }
  void Invalidate(std::string) override {}
  absl::StatusOr<std::vector<float>> ReadParameter(zero::ParameterId id) override {
    return At(id, zero::StateKind::kMaster);
  }
  std::vector<zero::ShardRange> ShardOf(zero::ParameterId) const override {
    return {{.offset = first_, .elements = end_ - first_}};
  }
  bool HasState(zero::ParameterId id, zero::StateKind kind) const override {
    return id == zero::ParameterId{0} || kind == zero::StateKind::kMaster;
  }
  zero::DataType state_type() const override { return type_; }
  const char* optimizer_name() const override { return "adamw"; }
  absl::Status ReadShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                         std::span<float> values) override {
    std::copy_n(At(id, kind).begin() + static_cast<ptrdiff_t>(offset), values.size(),
                values.begin());
    return absl::OkStatus();
  }
  absl::Status WriteShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                          std::span<const float> values) override {
    std::ranges::copy(values, At(id, kind).begin() + static_cast<ptrdiff_t>(offset));
    return absl::OkStatus();
  }
  absl::Status Restore(const zero::Progress&) override { return absl::OkStatus(); }
  absl::StatusOr<zero::Progress> GetProgress() override { return progress; }
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink>) override {
    return absl::UnimplementedError("");
  }
  absl::Status WaitSnapshot() override { return absl::OkStatus(); }
  std::optional<zero::Resumed> resumed() const override { return std::nullopt; }

  zero::Progress progress = {.step = 12,
                             .updates = 11,
                             .loss_scaler = {.scale = 4096, .good_steps = 3, .overflows = 1},
                             .tensor_state = {std::byte{1}, std::byte{2}, std::byte{3}}};

 private:
  const uint64_t first_, end_;
  const zero::DataType type_;
  std::map<std::pair<uint32_t, zero::StateKind>, std::vector<float>> values_;
};

inline std::vector<zero::Parameter> Parameters(int64_t elements = kElements) {
  return {{.name = "trained", .shape = {2, elements / 2}}, {.name = "frozen", .shape = {elements}}};
}

inline StateImage ImageOf(RankOfTest* rank,
                          const std::vector<zero::Parameter>& parameters = Parameters()) {
  return *StateImage::Of(rank, parameters);
}

// Small integers, which bf16 holds.
inline float ValueOf(uint32_t id, zero::StateKind kind, uint64_t element) {
  return static_cast<float>(id * 50 + static_cast<uint32_t>(kind) * 10 + element);
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_SCALING_RANK_OF_TEST_H_
