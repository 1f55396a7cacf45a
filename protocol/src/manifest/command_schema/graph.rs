//! What checking a value against a schema can cost, from the graph of its subschemas.

use std::collections::HashMap;

use serde_json::Value;

use super::{COST_MAX, SchemaFault, Target, fault};
use crate::frame::DEPTH_MAX;

/// The subschemas of one schema, and which of them apply others.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    /// By the address of the schema, which stays where it is while it is checked.
    by_address: HashMap<*const Value, usize>,
    references: Vec<(usize, String)>,
}

struct Node {
    parent: Option<usize>,
    /// What leads here from the parent: as a whole pointer it would be long in each of many nodes.
    token: String,
    applies: Vec<(Target, usize)>,
}

/// How many subschemas apply below some value.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    /// To the value itself.
    same: u32,
    /// To one item of it and what is in that, if it is an array.
    item: u32,
    /// To one member of it and what is in that, if it is an object.
    member: u32,
}

impl Graph {
    pub(super) fn add(&mut self, parent: Option<usize>, token: String, schema: &Value) -> usize {
        let node = self.nodes.len();
        self.by_address.insert(std::ptr::from_ref(schema), node);
        self.nodes.push(Node { parent, token, applies: Vec::new() });
        node
    }

    /// Where a node is, for the reader.
    pub(super) fn pointer(&self, node: usize) -> String {
        let mut tokens = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next {
            tokens.push(self.nodes[node].token.as_str());
            next = self.nodes[node].parent;
        }
        tokens.reverse();
        crate::text::clip(&tokens.concat(), 200)
    }

    pub(super) fn apply(&mut self, node: usize, target: Target, child: usize) {
        self.nodes[node].applies.push((target, child));
    }

    pub(super) fn refer(&mut self, node: usize, pointer: String) {
        self.references.push((node, pointer));
    }

    /// Finds what each `$ref` refers to.
    pub(super) fn resolve(&mut self, root: &Value) -> Result<(), SchemaFault> {
        for (node, target) in std::mem::take(&mut self.references) {
            let child =
                root.pointer(&target).and_then(|schema| self.by_address.get(&std::ptr::from_ref(schema)));
            let Some(child) = child else {
                return fault(
                    format!("{}/$ref", self.pointer(node)),
                    format!("refers to `#{}`, where no schema is", crate::text::clip(&target, 80)),
                    "define it there, e.g. under `$defs`",
                );
            };
            self.nodes[node].applies.push((Target::Same, *child));
        }
        Ok(())
    }

    /// Refuses a schema that recurses without descending into the value, or of which more than [`COST_MAX`]
    /// subschemas apply along one path into a value as deep as a frame may be.
    pub(super) fn check_cost(&self) -> Result<(), SchemaFault> {
        let order = self.applied_first()?;
        let mut below = vec![0; self.nodes.len()];
        for _ in 0..=DEPTH_MAX {
            let costs = self.costs(&order, &below);
            if costs.first().is_some_and(|root| *root > COST_MAX) {
                return fault(
                    String::new(),
                    format!("lets more than {COST_MAX} of its parts apply along one path into a value"),
                    "use fewer alternatives, or tell the recursive ones apart by the names of properties",
                );
            }
            if costs == below {
                break;
            }
            below = costs;
        }
        Ok(())
    }

    /// The nodes in such an order that what a node applies to the same value comes before the node.
    fn applied_first(&self) -> Result<Vec<usize>, SchemaFault> {
        let mut waits_for: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut applied_by = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            let same = node.applies.iter().filter(|(target, _)| *target == Target::Same);
            waits_for.push(same.clone().count());
            same.for_each(|(_, child)| applied_by[*child].push(index));
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|node| waits_for[*node] == 0).collect();
        let mut next = 0;
        while let Some(&child) = order.get(next) {
            next += 1;
            for &node in &applied_by[child] {
                waits_for[node] -= 1;
                if waits_for[node] == 0 {
                    order.push(node);
                }
            }
        }
        match waits_for.iter().position(|count| *count > 0) {
            None => Ok(order),
            Some(node) => fault(
                self.pointer(node),
                "refers to itself without descending into the value",
                "let a recursive `$ref` stand below `properties` or `items`",
            ),
        }
    }

    /// What each node costs on values one level deeper than those of `below`.
    fn costs(&self, order: &[usize], below: &[u32]) -> Vec<u32> {
        let mut costs = vec![Cost::default(); self.nodes.len()];
        for &node in order {
            let mut cost = Cost { same: 1, ..Cost::default() };
            let (mut dearest_item, mut dearest_member) = (0, 0);
            for &(target, child) in &self.nodes[node].applies {
                match target {
                    Target::Same => {
                        cost.same = cost.same.saturating_add(costs[child].same);
                        cost.item = cost.item.saturating_add(costs[child].item);
                        cost.member = cost.member.saturating_add(costs[child].member);
                    }
                    Target::Items => cost.item = cost.item.saturating_add(below[child]),
                    Target::Item => dearest_item = below[child].max(dearest_item),
                    Target::Members => cost.member = cost.member.saturating_add(below[child]),
                    Target::Member => dearest_member = below[child].max(dearest_member),
                    Target::Nothing => {}
                }
            }
            cost.item = cost.item.saturating_add(dearest_item);
            cost.member = cost.member.saturating_add(dearest_member);
            costs[node] = cost;
        }
        costs.iter().map(|cost| cost.same.saturating_add(cost.item.max(cost.member))).collect()
    }
}
