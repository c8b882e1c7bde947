use tidegate::capture::Visitor;
use tidegate::host::prelude::{On, Region};
use tidegate::host::{Carry, Host};

struct State<'s>(Region<f64, On<'s>>);

impl<'s> Carry<'s, Host> for State<'s> {
    type At<'t> = State<'t>;

    fn visit(&mut self, _: &mut Visitor<'_, Host>) {}
}

fn main() {}
