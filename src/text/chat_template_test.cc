#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/template_form.h"

namespace rondo::text {
namespace {

using testing::HasSubstr;

const std::vector<Message> kChat = {{"user", "Hi "}, {"assistant", "Yes?"}};

// A folder that goes with the test.
class Folder final {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rondo_chat_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const char* file, std::string_view text) const {
    ASSERT_TRUE(write_file_durable(path_ / file, text).has_value());
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string render(const Result<ChatTemplate>& chat, const std::vector<Message>& messages, bool prompt) {
  EXPECT_TRUE(chat.has_value()) << chat.error().to_string();
  return chat ? chat->render(messages, prompt).value_or("error") : "";
}

TEST(ChatTemplateTest, ChatMl) {
  const auto chat = ChatTemplate::create("chatml", "");
  EXPECT_EQ(render(chat, kChat, false),
            "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n");
  EXPECT_EQ(render(chat, {{"user", "Hi"}}, true), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplateTest, Llama3StripsContent) {
  const auto chat = ChatTemplate::create("llama3", "");
  EXPECT_EQ(render(chat, {{"user", "\x1c\u3000 Hi\u0085\n"}}, true),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

// The template text of SmolLM2's model card, as its files have it.
TEST(ChatTemplateTest, AModelsDefaultSystemTurnIsItsOwn) {
  Folder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %})"
      R"({{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' +)"
      R"( message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %})"
      R"({{ '<|im_start|>assistant\n' }}{% endif %}"})");
  const auto chat = ChatTemplate::create("model", folder.path());
  EXPECT_EQ(
      render(chat, {{"user", "Hi"}}, true),
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render(chat, {{"system", "Be brief."}}, false), "<|im_start|>system\nBe brief.<|im_end|>\n");
}

TEST(ChatTemplateTest, TheJinjaFileWinsOverTheConfig) {
  Folder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
  folder.write("chat_template.jinja",
               "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content "
               "}}<|im_end|>{{ '\\n' }}\n"
               "{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n");
  // The line end after {{ '\n' }} is printed as well, so this is not ChatML.
  EXPECT_EQ(ChatTemplate::create("model", folder.path()).error().code(), Code::kUnsupported);
  folder.write("chat_template.jinja",
               "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content "
               "}}<|im_end|>{{ '\\n' }}"
               "{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n");
  EXPECT_EQ(render(ChatTemplate::create("model", folder.path()), {{"user", "Hi"}}, false),
            "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplateTest, RefusalsNameTheOptions) {
  Folder folder;
  const auto missing = ChatTemplate::create("model", folder.path());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("\"chatml\" or \"llama3\""));

  folder.write("tokenizer_config.json", R"({"chat_template": "{{ messages | length }}"})");
  const auto unknown = ChatTemplate::create("model", folder.path());
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), Code::kUnsupported);
  EXPECT_THAT(unknown.error().message(), HasSubstr("\"chatml\" or \"llama3\""));

  const auto mistyped = ChatTemplate::create("chatlm", folder.path());
  ASSERT_FALSE(mistyped.has_value());
  EXPECT_THAT(mistyped.error().message(), HasSubstr("did you mean \"chatml\"?"));

  folder.write("tokenizer_config.json", "{");
  EXPECT_EQ(ChatTemplate::create("model", folder.path()).error().code(), Code::kDataLoss);
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "x"}]})");
  EXPECT_EQ(ChatTemplate::create("model", folder.path()).error().code(), Code::kDataLoss);
}

TEST(ChatTemplateTest, RefusesConversationsItCannotRender) {
  const auto chat = ChatTemplate::create("chatml", "");
  EXPECT_EQ(chat->render({}, true).error().code(), Code::kInvalidArgument);
  const std::vector<Message> nobody = {{"user", "a"}, {"", "b"}};
  EXPECT_THAT(chat->render(nobody, true).error().message(), HasSubstr("message 1"));
}

TEST(ChatTemplateTest, SpellingsOfOneTemplateHaveOneForm) {
  const std::string form = template_form("{% for m in ms %}{{ m['a'] + 'x\n' }}{% endfor %}");
  EXPECT_EQ(form,
            "\x01"
            "for m in ms\x03\x02m[\"a\"]\x03x\n\x01"
            "endfor\x03");
  EXPECT_EQ(template_form("{%- for m in ms -%}\n  {{- m.a }}{{ \"x\\n\" }}\n {%- endfor -%}\n"), form);
  EXPECT_EQ(template_form("{% for m in ms %}\n{{ m.a }}x\n    {% endfor %}\n"), form);
  EXPECT_EQ(template_form("{# why #}\n{% for m in ms %}{{ m.a }}x{{ '\\n' }}{% endfor %}"), form);
}

TEST(ChatTemplateTest, OneLineEndAtTheEndIsNotPrinted) {
  EXPECT_EQ(template_form("{{ a }}\n"), template_form("{{ a }}"));
  EXPECT_NE(template_form("{{ a }}\n\n"), template_form("{{ a }}"));
}

TEST(ChatTemplateTest, TemplatesThatPrintOtherThingsHaveOtherForms) {
  const std::string form = template_form("{{ m.a + 'x' }}");
  for (const char* other :
       {"{{ m.a + 'x' | trim }}", "{{ m.a + ' x' }}", "{{ m.a }} x", "{{ m.a - 'x' }}", "{% m.a + 'x' %}",
        "{{ m.a if 'x' }}", "{{ m.b + 'x' }}", "{{ 'm' + 'x' }}", "{{ m.a + 'x'", "{{ m.a[+'x'] }}"})
    EXPECT_NE(template_form(other), form) << other;
}

}  // namespace
}  // namespace rondo::text
