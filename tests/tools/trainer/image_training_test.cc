// Training on images (ViT): over ranks and stages, under every use of memory, with resumes, with
// another classifier, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/tools/trainer/compared_runs.h"
#include "tests/training/data/image_files.h"

namespace geminid::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Words Cut(const std::string& axes) { return {"--parallel", axes}; }

class ImageTraining : public ComparedRuns {
 protected:
  ImageTraining() : ComparedRuns({"--model", "vit-tiny", "--accumulate", "4", "--dtype", "fp32"}) {}

  Words Data() const override { return {"--images", data_}; }

  std::string Refusal(const Words& more) const {
    const absl::Status status = Try(more);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }
  // The runs from now on read these.
  void Take(uint64_t count, uint64_t channels, uint64_t side, uint64_t classes) {
    data_ = folder_.Write(absl::StrCat(count, "-", channels, "-", side, "-", classes, kSuffix),
                          RandomImageFile(count, channels, side, classes, /*seed=*/1));
  }

  static constexpr char kSuffix[] = ".safetensors";
  std::string data_ = folder_.Write("images.safetensors", RandomImageFile(40, 3, 32, 10, 1));
};

TEST_F(ImageTraining, OverDataAndStages_IsThatOfOneRank) {
  const Words unclipped = {"--clip-norm", "0", "--layers", "4", "--validation", "0.4"};
  const json one = RunOnce(unclipped);
  ExpectSameBits(Run(unclipped + Cut("pipeline=2")), one);
  for (const char* const axes : {"data=2", "data=4", "data=2,zero=1", "data=2,zero=2"}) {
    SCOPED_TRACE(axes);
    const json cut = Run(unclipped + Cut(axes));
    ExpectNear(cut, one);
    EXPECT_EQ(cut["validation"].back()["accuracy"], one["validation"].back()["accuracy"]);
  }
}

TEST_F(ImageTraining, HoweverMemoryIsUsed_HasTheSameBits) {
  for (const char* const type : {"fp32", "bf16"}) {
    const Words model = {"--dtype", type, "--layers", "6", "--hidden", "128", "--dropout", "0.1"};
    const json one = Run(model);
    for (const Words& how : std::vector<Words>{{"--activations", "recompute"},
                                               {"--activations", "keep"},
                                               {"--activations", "offload"},
                                               {"--placement", "cpu"},
                                               {"--device-memory", "2MiB"}}) {
      SCOPED_TRACE(testing::PrintToString(model + how));
      const json limited = Run(model + how);
      ExpectSameBits(limited, one);
      EXPECT_TRUE(how[0] != "--device-memory" || limited["everything_fits"] == false);
    }
  }
}

// The labels follow from a pixel.
TEST_F(ImageTraining, OfImagesThatItSeesAgain_LearnsTheirLabels) {
  Take(8, 3, 32, 10);
  const json report = Run({"--steps", "60", "--sampling", "shuffle", "--batch", "8", "--accumulate",
                           "1", "--lr", "1e-3", "--export", run_});
  EXPECT_LT(report["loss"].back(), 0.1);
  EXPECT_EQ(report["samples_per_epoch"], 8);
  EXPECT_EQ(report["epochs_done"], 60);
  EXPECT_EQ(report["tokens_per_step"], 8 * 17);
  const json measured =
      Run({"--load", run_, "--eval-only", "--validation-batches", "1", "--batch", "8"});
  EXPECT_EQ(measured["accuracy"], 1);
  EXPECT_LT(measured["validation_loss"], 0.1);
}

TEST_F(ImageTraining, ThatGoesOn_HasTheBitsOfOneThatNeverEnded) {
  const Words model = {"--validation", "0.25", "--dropout", "0.1", "--sampling", "shuffle"};
  const json whole = Run(model);
  ASSERT_FALSE(Run(model + Words{"--steps", "2", "--save", run_}).is_null());
  const json rest = Run(model + Words{"--save", run_, "--resume"});
  EXPECT_EQ(rest["loss_hex"][1], whole["loss_hex"][3]);
  EXPECT_EQ(rest["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(rest["validation"].back(), whole["validation"].back());
  // The same images with other labels are other data.
  Take(40, 3, 32, 9);
  const Words goes_on = {"--save", run_, "--resume", "--steps", "5"};
  EXPECT_THAT(std::string(Try(model + goes_on).message()), HasSubstr("40 images, CRC-32C"));
}

// What was exported is loaded with its classifier, or with a new one for other labels.
TEST_F(ImageTraining, WithOtherLabels_BeginsAnotherClassifierWhereItIsAskedFor) {
  const std::string exported = folder_ / "exported";
  ASSERT_FALSE(Run({"--export", exported}).is_null());
  const Words loads = {"--load", exported, "--batch", "8", "--eval-only", "--validation-batches",
                       "2"};
  const json before = Run(loads);
  Take(40, 3, 32, 13);
  EXPECT_THAT(Refusal({"--load", exported}),
              HasSubstr("and the model has 10 classes, 0 to 9; give --classes"));
  const json report =
      Run({"--load", exported, "--classes", "13", "--steps", "1", "--export", run_});
  EXPECT_EQ(report["model"]["classes"], 13);
  EXPECT_THAT(report["notes"].dump(), HasSubstr("--classes 13: the classifier begins at random"));
  EXPECT_EQ(json::parse(std::ifstream(run_ + "/config.json"))["id2label"].size(), 13u);
  EXPECT_THAT(std::string(Try(loads + Words{"--classes", "13"}).message()),
              HasSubstr("'classifier.weight' has the shape [10, 64]; the model's is [13, 64]"));
  EXPECT_GT(before["validation_loss"], 0);
}

TEST_F(ImageTraining, WithDataOfAnotherKind_IsRefusedByTheFlag) {
  EXPECT_THAT(Refusal({"--model", "gpt2-tiny"}),
              HasSubstr("--images is for models of images, and the gpt2 family reads tokens"));
  EXPECT_THAT(Refusal({"--text", text_}), HasSubstr("--text and --images are both given"));
  EXPECT_THAT(Refusal({"--context", "9"}),
              HasSubstr("--context is for models of tokens, and the vit family reads images"));
  EXPECT_THAT(Refusal({"--vocabulary", "9"}), HasSubstr("--vocabulary is for models of tokens"));
  EXPECT_THAT(Refusal({"--model", "gpt2-tiny", "--classes", "3"}),
              HasSubstr("--classes is for models of images"));
  EXPECT_THAT(Refusal({"--image-size", "64"}),
              HasSubstr("has images of 32 x 32 pixels, and the model reads 64 x 64"));
  EXPECT_THAT(Refusal({"--patch-size", "5"}),
              HasSubstr("the patch size (5) must divide the image size (32)"));
  EXPECT_THAT(Refusal({"--channels", "1"}), HasSubstr("of 3 channels; the model reads 1"));
  EXPECT_THAT(Refusal({"--classes", "7"}), HasSubstr("and the model has 7 classes"));
}

TEST_F(ImageTraining, WithMeshesThatCutAnImage_IsRefusedByTheAxis) {
  EXPECT_THAT(Refusal(Cut("tensor=1d:2")),
              HasSubstr("the family vit does not work with tensor yet"));
  for (const char* const axes : {"sequence=ulysses:2", "sequence=ring:2"}) {
    EXPECT_THAT(Refusal(Cut(axes)), HasSubstr("the model reads an image as a whole"));
  }
  EXPECT_THAT(Refusal(Words{"--layers", "4"} + Cut("pipeline=zbv:2")),
              HasSubstr("pipeline=zbv does not support encoders yet"));
  EXPECT_THAT(Refusal({"--lora-rank", "2"}), HasSubstr("adapters do not support a classifier yet"));
}

// Another shape from flags alone: grayscale, and patches of another size.
TEST_F(ImageTraining, OfAShapeOfItsOwn_TakesItFromTheFlags) {
  Take(12, 1, 28, 3);
  const json report = Run({"--channels", "1", "--image-size", "28", "--patch-size", "7",
                           "--classes", "3", "--steps", "1"});
  EXPECT_EQ(report["model"]["context"], 17);
  EXPECT_EQ(report["model"]["channels"], 1);
  const uint64_t embedding = 64 * 49 + 64 + 17 * 64 + 64, ends = 2 * 64 + 3 * 64 + 3;
  const uint64_t layer = 4 * (64 * 64 + 64) + 2 * 64 * 256 + 256 + 64 + 4 * 64;
  EXPECT_EQ(report["parameters"], embedding + 2 * layer + ends);
}

}  // namespace
}  // namespace geminid::trainer
