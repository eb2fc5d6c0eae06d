//! The shape of a chat completion request, as far as a native backend understands it. Members that are not named here are
//! skipped, whatever they are.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer, value::SeqAccessDeserializer},
};
use serde_json::value::RawValue;

/// A string that stands in the body where it can.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The whole request.
#[derive(Debug, Deserialize)]
pub(super) struct Chat<'a> {
    #[serde(borrow)]
    pub(super) messages: Option<Vec<Message<'a>>>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) max_completion_tokens: Option<u64>,
    pub(super) max_tokens: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) top_k: Option<i64>,
    pub(super) min_p: Option<f64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    pub(super) seed: Option<i64>,
    #[serde(borrow)]
    pub(super) stop: Option<WordOr<'a, Vec<Text<'a>>>>,
    pub(super) n: Option<u64>,
    pub(super) logprobs: Option<bool>,
    pub(super) top_logprobs: Option<u64>,
    #[serde(borrow)]
    pub(super) logit_bias: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tools: Option<Vec<Tool<'a>>>,
    #[serde(borrow)]
    pub(super) functions: Option<Vec<Function<'a>>>,
    #[serde(borrow)]
    pub(super) tool_choice: Option<WordOr<'a, Choice<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<WordOr<'a, Named<'a>>>,
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(borrow)]
    pub(super) response_format: Option<ResponseFormat<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_effort: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reasoning: Option<Reasoning<'a>>,
    #[serde(borrow)]
    pub(super) think: Option<Think<'a>>,
    #[serde(borrow)]
    pub(super) chat_template_kwargs: Option<TemplateArguments<'a>>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) role: Text<'a>,
    #[serde(borrow)]
    pub(super) content: Option<WordOr<'a, Vec<Part<'a>>>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_call_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<CalledFunction<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) image_url: Option<WordOr<'a, ImageUrl<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ImageUrl<'a> {
    #[serde(borrow)]
    pub(super) url: Text<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Call<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<CalledFunction<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CalledFunction<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// A string that holds a JSON object; some clients send the object itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tool<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) description: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) parameters: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Named<'a>>,
    #[serde(borrow)]
    pub(super) allowed_tools: Option<Allowed<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Allowed<'a> {
    #[serde(borrow)]
    pub(super) mode: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tools: Vec<AllowedTool<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AllowedTool<'a> {
    #[serde(borrow)]
    pub(super) function: Option<Named<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ResponseFormat<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) json_schema: Option<JsonSchema<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct JsonSchema<'a> {
    #[serde(borrow)]
    pub(super) schema: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Reasoning<'a> {
    #[serde(borrow)]
    pub(super) effort: Option<Text<'a>>,
    pub(super) enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TemplateArguments<'a> {
    pub(super) enable_thinking: Option<bool>,
    pub(super) thinking: Option<bool>,
    #[serde(borrow)]
    pub(super) reasoning_effort: Option<Text<'a>>,
}

/// A string, or something of structure.
#[derive(Debug)]
pub(super) enum WordOr<'a, T> {
    Word(Cow<'a, str>),
    Other(T),
}

/// Something of structure behind [`WordOr`]; serde asks for the kind of value before it is known.
trait Structure<'de>: Deserialize<'de> {
    const EXPECTED: &'static str;
}

impl<'de: 'a, 'a> Structure<'de> for Vec<Text<'a>> {
    const EXPECTED: &'static str = "a string or an array of strings";
}

impl<'de: 'a, 'a> Structure<'de> for Vec<Part<'a>> {
    const EXPECTED: &'static str = "a string, null or an array of content parts";
}

impl<'de: 'a, 'a> Structure<'de> for ImageUrl<'a> {
    const EXPECTED: &'static str = "an object with `url`";
}

impl<'de: 'a, 'a> Structure<'de> for Choice<'a> {
    const EXPECTED: &'static str = "`none`, `auto`, `required` or an object";
}

impl<'de: 'a, 'a> Structure<'de> for Named<'a> {
    const EXPECTED: &'static str = "`none`, `auto` or an object with `name`";
}

impl<'de: 'a, 'a, T: Structure<'de>> Deserialize<'de> for WordOr<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<'a, T>(PhantomData<(&'a (), T)>);

        impl<'de: 'a, 'a, T: Structure<'de>> Visitor<'de> for Either<'a, T> {
            type Value = WordOr<'a, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(WordOr::Word(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(WordOr::Word(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(seq)).map(WordOr::Other)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// `think`, as Ollama's clients say it.
#[derive(Debug)]
pub(super) enum Think<'a> {
    Whether(bool),
    Effort(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Think<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Either<'a> {
            type Value = Think<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean or a word")
            }

            fn visit_bool<E: de::Error>(self, whether: bool) -> Result<Self::Value, E> {
                Ok(Think::Whether(whether))
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Think::Effort(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Think::Effort(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}
