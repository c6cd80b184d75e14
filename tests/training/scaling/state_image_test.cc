#include "training/scaling/state_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace geminid::trainer {
namespace {

using zero::ParameterId;
using zero::ShardRange;
using zero::StateKind;

constexpr uint64_t kElements = 10;

// Two parameters of ten elements. Each of several ranks has its run of them; the second is frozen.
class Rank final : public zero::ModelState {
 public:
  Rank(uint64_t rank, uint64_t ranks, zero::DataType type)
      : first_(kElements * rank / ranks), end_(kElements * (rank + 1) / ranks), type_(type) {}

  std::vector<float>& At(ParameterId id, StateKind kind) {
    std::vector<float>& values = values_[{static_cast<uint32_t>(id), kind}];
    values.resize(kElements);
    return values;
  }

  absl::Status Initialize(const Fill&) override { return absl::OkStatus(); }
  void Invalidate(std::string) override {}
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override {
    return At(id, StateKind::kMaster);
  }
  std::vector<ShardRange> ShardOf(ParameterId) const override {
    return {{.offset = first_, .elements = end_ - first_}};
  }
  bool HasState(ParameterId id, StateKind kind) const override {
    return id == ParameterId{0} || kind == StateKind::kMaster;
  }
  zero::DataType state_type() const override { return type_; }
  const char* optimizer_name() const override { return "adamw"; }
  absl::Status ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                         std::span<float> values) override {
    std::copy_n(At(id, kind).begin() + static_cast<ptrdiff_t>(offset), values.size(),
                values.begin());
    return absl::OkStatus();
  }
  absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
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
  std::map<std::pair<uint32_t, StateKind>, std::vector<float>> values_;
};

std::vector<zero::Parameter> Parameters(int64_t elements = kElements) {
  return {{.name = "trained", .shape = {2, elements / 2}}, {.name = "frozen", .shape = {elements}}};
}

StateImage ImageOf(Rank* rank, const std::vector<zero::Parameter>& parameters = Parameters()) {
  return *StateImage::Of(rank, parameters);
}

// Small integers, which bf16 represents exactly.
float ValueOf(uint32_t id, StateKind kind, uint64_t element) {
  return static_cast<float>(id * 50 + static_cast<uint32_t>(kind) * 10 + element);
}

class StateImageOf : public ::testing::TestWithParam<zero::DataType> {};

TEST_P(StateImageOf, TwoRanks_GivesThreeTheirShards) {
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < 2; ++i) {
    Rank rank(i, 2, GetParam());
    const StateImage image = ImageOf(&rank);
    bytes.resize(image.bytes());
    for (const uint32_t id : {0U, 1U}) {
      for (const StateKind kind : zero::kStateKinds) {
        for (uint64_t element = 0; element < kElements; ++element) {
          rank.At(ParameterId{id}, kind)[element] = ValueOf(id, kind, element);
        }
      }
    }
    ASSERT_TRUE(image.Write(bytes).ok());
  }
  Rank first(0, 2, GetParam());
  const checkpoint::RunState run = {.data_position = 99, .random_state = {7, 8, 9, 10}};
  ASSERT_TRUE(ImageOf(&first)
                  .WritePosition({first.progress, run, checkpoint::Health::kDiverged}, bytes)
                  .ok());
  for (uint64_t i = 0; i < 3; ++i) {
    Rank rank(i, 3, GetParam());
    const StateImage image = ImageOf(&rank);
    const auto position = image.ReadPosition(bytes);
    ASSERT_TRUE(position.ok()) << position.status();
    EXPECT_EQ(position->progress.step, 12u);
    EXPECT_EQ(position->progress.updates, 11u);
    EXPECT_EQ(position->progress.loss_scaler, first.progress.loss_scaler);
    EXPECT_EQ(position->progress.tensor_state, first.progress.tensor_state);
    EXPECT_EQ(position->run, run);
    EXPECT_EQ(position->health, checkpoint::Health::kDiverged);
    ASSERT_TRUE(image.Read(bytes).ok());
    const ShardRange mine = rank.ShardOf(ParameterId{0}).front();
    for (const uint32_t id : {0U, 1U}) {
      for (const StateKind kind : zero::kStateKinds) {
        if (!rank.HasState(ParameterId{id}, kind)) continue;
        for (uint64_t at = mine.offset; at < mine.offset + mine.elements; ++at) {
          EXPECT_EQ(rank.At(ParameterId{id}, kind)[at], ValueOf(id, kind, at)) << id << " " << at;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StateImageOf,
                         ::testing::Values(zero::DataType::kFloat32, zero::DataType::kBFloat16));

TEST(StateImage, OfAnotherModel_IsRefused) {
  Rank rank(0, 1, zero::DataType::kFloat32);
  const StateImage image = ImageOf(&rank);
  std::vector<std::byte> bytes(image.bytes());
  ASSERT_TRUE(image.WritePosition({rank.progress, {}}, bytes).ok());
  // The image has the same number of bytes, because each array begins on a cache line.
  const StateImage other = ImageOf(&rank, Parameters(kElements - 2));
  ASSERT_EQ(other.bytes(), image.bytes());
  EXPECT_TRUE(absl::IsInternal(other.ReadPosition(bytes).status()));
  bytes.resize(bytes.size() - 1);
  EXPECT_TRUE(absl::IsInternal(image.ReadPosition(bytes).status()));
  EXPECT_TRUE(absl::IsInternal(image.WritePosition({rank.progress, {}}, bytes)));
}

}  // namespace
}  // namespace geminid::trainer
