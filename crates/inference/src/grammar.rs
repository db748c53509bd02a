//! The provider requests that may be sent, as tables: every field that is not here is refused.
//!
//! Left out on purpose, because each would let the provider reach, keep or run something for the
//! agent, or cost what the operator did not allow: hosted tools, remote tool servers, containers
//! and skills, sources named by a URL or a stored file, server-side tool blocks, context edits
//! other than keeping all, other models to fall back to, service tiers and speeds.

use crate::shape::Shape::{
    Count, Flag, Fraction, Free, List, Name, Nothing, Object, OneOf, Tagged, Text, TextOr, UserId,
    Word,
};
use crate::shape::{Field, Shape, may, must};

/// `POST /v1/messages`
pub(crate) static MESSAGES: Shape = Object(&[
    must("model", &Text),
    must("messages", &List(&MESSAGE)),
    must("max_tokens", &Count),
    may("system", &TextOr(&Text, &List(&SYSTEM_BLOCK))),
    may("tools", &List(&TOOL)),
    may("tool_choice", &TOOL_CHOICE),
    may("metadata", &Object(&[may("user_id", &UserId)])),
    may("stream", &Flag),
    may("temperature", &Fraction),
    may("top_p", &Fraction),
    may("top_k", &Count),
    may("stop_sequences", &List(&Text)),
    may("thinking", &THINKING),
    may("context_management", &CONTEXT_MANAGEMENT),
    may("output_config", &OUTPUT_CONFIG),
    may("cache_control", &CACHE_CONTROL),
]);

/// `POST /v1/messages/count_tokens`: nothing is generated, so nothing that bounds it is there.
pub(crate) static COUNT_TOKENS: Shape = Object(&[
    must("model", &Text),
    must("messages", &List(&MESSAGE)),
    may("system", &TextOr(&Text, &List(&SYSTEM_BLOCK))),
    may("tools", &List(&TOOL)),
    may("tool_choice", &TOOL_CHOICE),
    may("thinking", &THINKING),
    may("context_management", &CONTEXT_MANAGEMENT),
    may("output_config", &OUTPUT_CONFIG),
    may("cache_control", &CACHE_CONTROL),
]);

static MESSAGE: Shape = Tagged {
    by: "role",
    default: None,
    variants: &[
        ("user", &[must("content", &CONTENT)]),
        ("assistant", &[must("content", &CONTENT)]),
        (
            "system",
            &[
                must("content", &TextOr(&Text, &List(&SYSTEM_CHANGE))),
                may("output_config", &Object(&[may("effort", &Word)])),
            ],
        ),
    ],
};

static CONTENT: Shape = TextOr(&Text, &List(&BLOCK));

/// What a system message in the midst of a conversation may say: a text, or a tool that comes or
/// goes. A tool that comes by value is held to the same rule as one in `tools`.
static SYSTEM_CHANGE: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        ("text", TEXT_FIELDS),
        (
            "tool_addition",
            &[
                must("tool", &ADDED_TOOL),
                may("cache_control", &CACHE_CONTROL),
            ],
        ),
        (
            "tool_removal",
            &[
                must("tool", &REMOVED_TOOL),
                may("cache_control", &CACHE_CONTROL),
            ],
        ),
    ],
};

static ADDED_TOOL: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        ("tool_reference", &[must("name", &Name)]),
        ("tool_definition", &[must("definition", &TOOL)]),
    ],
};

static REMOVED_TOOL: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[("tool_reference", &[must("name", &Name)])],
};

static SYSTEM_BLOCK: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[("text", TEXT_FIELDS)],
};

static BLOCK: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        ("text", TEXT_FIELDS),
        ("image", IMAGE_FIELDS),
        ("document", DOCUMENT_FIELDS),
        ("tool_use", TOOL_USE_FIELDS),
        ("tool_result", TOOL_RESULT_FIELDS),
        (
            "thinking",
            &[must("thinking", &Text), must("signature", &Text)],
        ),
        ("redacted_thinking", &[must("data", &Text)]),
    ],
};

const TEXT_FIELDS: &[Field] = &[
    must("text", &Text),
    may("citations", &Nothing),
    may("cache_control", &CACHE_CONTROL),
];

const IMAGE_FIELDS: &[Field] = &[
    must("source", &IMAGE_SOURCE),
    may("cache_control", &CACHE_CONTROL),
];

const DOCUMENT_FIELDS: &[Field] = &[
    must("source", &DOCUMENT_SOURCE),
    may("title", &Text),
    may("context", &Text),
    may("cache_control", &CACHE_CONTROL),
];

const TOOL_USE_FIELDS: &[Field] = &[
    must("id", &Name),
    must("name", &Name),
    must("input", &Free),
    may("caller", &DIRECT_CALLER),
    may("cache_control", &CACHE_CONTROL),
];

const TOOL_RESULT_FIELDS: &[Field] = &[
    must("tool_use_id", &Name),
    may("content", &RESULT_CONTENT),
    may("is_error", &Flag),
    may("cache_control", &CACHE_CONTROL),
];

static RESULT_CONTENT: Shape = TextOr(&Text, &List(&RESULT_BLOCK));

static RESULT_BLOCK: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        ("text", TEXT_FIELDS),
        ("image", IMAGE_FIELDS),
        ("document", DOCUMENT_FIELDS),
        (
            "tool_reference",
            &[
                must("tool_name", &Name),
                may("cache_control", &CACHE_CONTROL),
            ],
        ),
    ],
};

static IMAGE_SOURCE: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[(
        "base64",
        &[
            must(
                "media_type",
                &OneOf(&["image/jpeg", "image/png", "image/gif", "image/webp"]),
            ),
            must("data", &Text),
        ],
    )],
};

static DOCUMENT_SOURCE: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        (
            "base64",
            &[
                must("media_type", &OneOf(&["application/pdf"])),
                must("data", &Text),
            ],
        ),
        (
            "text",
            &[
                must("media_type", &OneOf(&["text/plain"])),
                must("data", &Text),
            ],
        ),
    ],
};

/// The model called the tool itself, not a program that the provider ran for it.
static DIRECT_CALLER: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[("direct", &[])],
};

/// The client's own tools: a tool that the provider hosts has another `type`.
static TOOL: Shape = Tagged {
    by: "type",
    default: Some("custom"),
    variants: &[(
        "custom",
        &[
            must("name", &Name),
            must("input_schema", &Free),
            may("description", &Text),
            may("strict", &Flag),
            may("defer_loading", &Flag),
            may("eager_input_streaming", &Flag),
            may("input_examples", &List(&Free)),
            may("cache_control", &CACHE_CONTROL),
        ],
    )],
};

static TOOL_CHOICE: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        ("auto", &[may("disable_parallel_tool_use", &Flag)]),
        ("any", &[may("disable_parallel_tool_use", &Flag)]),
        ("none", &[]),
        (
            "tool",
            &[must("name", &Name), may("disable_parallel_tool_use", &Flag)],
        ),
    ],
};

static THINKING: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[
        (
            "enabled",
            &[must("budget_tokens", &Count), may("display", &Word)],
        ),
        ("adaptive", &[may("display", &Word)]),
        ("disabled", &[]),
    ],
};

/// Only the hint that changes nothing: keep every thinking block.
static CONTEXT_MANAGEMENT: Shape = Object(&[must("edits", &List(&CONTEXT_EDIT))]);

static CONTEXT_EDIT: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[(
        "clear_thinking_20251015",
        &[must("keep", &TextOr(&OneOf(&["all"]), &KEEP_ALL))],
    )],
};

static KEEP_ALL: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[("all", &[])],
};

static OUTPUT_CONFIG: Shape = Object(&[may("effort", &Word), may("format", &OUTPUT_FORMAT)]);

static OUTPUT_FORMAT: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[("json_schema", &[must("schema", &Free)])],
};

static CACHE_CONTROL: Shape = Tagged {
    by: "type",
    default: None,
    variants: &[(
        "ephemeral",
        &[may("ttl", &OneOf(&["5m", "1h"])), may("scope", &Word)],
    )],
};
