// Saves and resumes with the optimizer's state in bf16.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/tensor_file.h"
#include "tests/client/checkpoint/checkpoint_fixture.h"

namespace geminid::zero {
namespace {

namespace fs = std::filesystem;
using checkpoint::Saver;
using ::testing::HasSubstr;

class SmallStateCheckpointTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    run_.options.state_type = DataType::kBFloat16;
  }

  // Loads with this number of ranks, and saves the result.
  void LoadAndSaveAgain(int ranks, const std::string& from, const std::string& to) {
    SyntheticRun run = Resuming(run_, from, 3);
    run.world_size = ranks;
    run.steps = 3;
    const auto load = run.prepare;
    run.prepare = [=, parameters = run.model.parameters](
                      Engine* engine, collectives::Communicator* communicator, int rank) {
      absl::Status done = load(engine, communicator, rank);
      if (!done.ok()) return done;
      const auto saver = Saver::Create(engine, communicator, parameters, {.folder = to});
      if (!saver.ok()) return saver.status();
      done = (*saver)->Save(kRun);
      return done.ok() ? (*saver)->Wait().status() : done;
    };
    MustRun(run);
  }

  static std::string BytesOf(const std::string& folder, const char* name) {
    std::ifstream file(folder + "/step-000000003/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(SmallStateCheckpointTest, ResumedRun_HasTheBitsOfTheUndisturbedOne) {
  const SyntheticResult whole = TrainAndSave({2});
  ExpectResumesTo(whole, Resuming(run_, folder_, 3));
  SyntheticRun other = Resuming(run_, folder_, 3);
  other.options.chunk_elements = 65536;
  other.arena_bytes = kAmpleArena;
  other.options.placement = Placement::kDevice;
  ExpectResumesTo(whole, other);
}

TEST_F(SmallStateCheckpointTest, Files_HaveTheTypeInHalfTheBytes) {
  TrainAndSave({2});
  const auto file =
      checkpoint::TensorFile::OpenToRead(folder_ + "/step-000000003/optimizer.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  uint64_t elements = 0;
  for (const checkpoint::TensorEntry& tensor : file->header().tensors) {
    EXPECT_EQ(tensor.type, checkpoint::ElementType::kBFloat16) << tensor.name;
    elements += tensor.elements();
  }
  EXPECT_EQ(file->header().data_bytes, 2 * elements);
}

TEST_F(SmallStateCheckpointTest, OneRankAfterTwoAndTwoAfterOne_HaveTheSameBits) {
  const SyntheticResult whole = TrainAndSave({2});
  const std::string of_one = temporary_ / "one";
  const std::string of_two = temporary_ / "two";
  LoadAndSaveAgain(1, folder_, of_one);
  LoadAndSaveAgain(2, of_one, of_two);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    ASSERT_FALSE(BytesOf(folder_, name).empty());
    EXPECT_TRUE(BytesOf(of_one, name) == BytesOf(folder_, name)) << name;
    EXPECT_TRUE(BytesOf(of_two, name) == BytesOf(folder_, name)) << name;
  }
  ExpectResumesTo(whole, Resuming(run_, of_two, 3));
}

TEST_F(SmallStateCheckpointTest, StateOfAnotherType_IsRefusedWithBoth) {
  TrainAndSave({2});
  run_.options.state_type = DataType::kFloat32;
  EXPECT_THAT(LoadError(), HasSubstr("stores the optimizer's state in bf16; this run uses fp32 "
                                     "(Options::state_type, --state-dtype). Give bf16"));
  EXPECT_EQ(ValuesError(), "") << "values alone have one type";
  fs::remove_all(folder_);
  TrainAndSave({2});
  run_.options.state_type = DataType::kBFloat16;
  EXPECT_THAT(LoadError(), HasSubstr("stores the optimizer's state in fp32; this run uses bf16 "
                                     "(Options::state_type, --state-dtype). Give fp32"));
}

}  // namespace
}  // namespace geminid::zero
