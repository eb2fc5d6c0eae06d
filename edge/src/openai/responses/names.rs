//! What a model calls a tool by, and what its client calls the same tool.
//!
//! Backends know functions with one name each. Clients of this surface have groups of functions (`namespace`: Codex finds a call of
//! one by both names, each in a member of its own) and tools that take a text (`custom`). Both go to the backend as functions
//! under one name, and their calls come back in the client's form.

use std::collections::{BTreeMap, btree_map::Entry};

/// Between the name of a group and that of a tool in it, as Codex joins them where it must.
const SEPARATOR: &str = "__";

/// How a call of a tool looks to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// `function_call`, with a JSON object.
    Function,
    /// `custom_tool_call`, with a text: the member [`Names::INPUT`] of what the backend gives.
    Custom,
}

/// A tool by its client's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// How its calls look.
    pub form: CallForm,
    /// The group that it is in.
    pub namespace: Option<String>,
    /// Its name in there.
    pub name: String,
}

/// Two tools have one name at the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// The tools of a request by their names at the backend.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, Called>);

impl Names {
    /// The one argument of a function that stands for a custom tool.
    pub const INPUT: &str = "input";

    /// The name at the backend. Underscores at the seam are the separator's.
    #[must_use]
    pub fn joined(namespace: Option<&str>, name: &str) -> String {
        match namespace {
            None => name.to_owned(),
            Some(namespace) => {
                let (group, name) = (namespace.trim_end_matches('_'), name.trim_start_matches('_'));
                [group, SEPARATOR, name].concat()
            }
        }
    }

    /// Takes a tool in; gives its name at the backend.
    ///
    /// # Errors
    /// Where it is the name of another tool already: a call could not be given back.
    pub fn add(&mut self, tool: Called) -> Result<String, Ambiguous> {
        let joined = Self::joined(tool.namespace.as_deref(), &tool.name);
        match self.0.entry(joined.clone()) {
            Entry::Vacant(place) => _ = place.insert(tool),
            Entry::Occupied(place) if *place.get() == tool => {}
            Entry::Occupied(_) => return Err(Ambiguous),
        }
        Ok(joined)
    }

    /// What the client calls it. A name that it does not know is a function's of that name.
    #[must_use]
    pub fn of(&self, joined: &str) -> Called {
        let unknown = || Called { form: CallForm::Function, namespace: None, name: joined.to_owned() };
        self.0.get(joined).cloned().unwrap_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(form: CallForm, namespace: Option<&str>, name: &str) -> Called {
        Called { form, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    #[test]
    fn a_tool_is_found_again_under_the_names_of_its_client() {
        let mut names = Names::default();
        for (known, joined) in [
            (tool(CallForm::Function, None, "shell"), "shell"),
            (tool(CallForm::Function, Some("mcp__docs__"), "_find"), "mcp__docs__find"),
            (tool(CallForm::Function, Some("files"), "find"), "files__find"),
            (tool(CallForm::Custom, None, "apply_patch"), "apply_patch"),
            (tool(CallForm::Custom, Some("g"), "t"), "g__t"),
        ] {
            assert_eq!(names.add(known.clone()).unwrap(), joined);
            assert_eq!(names.of(joined), known);
            assert_eq!(names.add(known).unwrap(), joined, "the same one again");
        }
        assert_eq!(names.of("invented"), tool(CallForm::Function, None, "invented"));
    }

    #[test]
    fn two_tools_of_one_name_are_told_apart_by_nobody() {
        let mut names = Names::default();
        names.add(tool(CallForm::Function, Some("a"), "b")).unwrap();
        for other in [
            tool(CallForm::Function, None, "a__b"),
            tool(CallForm::Custom, Some("a"), "b"),
            tool(CallForm::Function, Some("a_"), "b"),
        ] {
            assert_eq!(names.add(other), Err(Ambiguous));
        }
    }
}
