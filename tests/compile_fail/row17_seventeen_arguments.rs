use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut all = Vec::new();
    for value in 0..15 {
        all.push(Region::from_slice(&world, &[value as f64; 4])?.on(&s)?);
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, x] = &mut all[..] else {
        panic!("there are 15");
    };
    s.launch(
        |a: &[f64], b: &[f64], c: &[f64], d: &[f64], e: &[f64], f: &[f64], g: &[f64], h: &[f64],
        i: &[f64], j: &[f64], k: &[f64], l: &[f64], m: &[f64], n: &[f64], x: &mut [f64], by: f64, and: f64| { // wrong
        // right: i: &[f64], j: &[f64], k: &[f64], l: &[f64], m: &[f64], n: &[f64], x: &mut [f64], by: f64| {
            let sum: f64 = [a, b, c, d, e, f, g, h, i, j, k, l, m, n].iter().map(|x| x[0]).sum();
            x.fill(sum * by + and); // wrong
            // right: x.fill(sum * by);
        },
        (&*a, &*b, &*c, &*d, &*e, &*f, &*g, &*h, &*i, &*j, &*k, &*l, &*m, &*n, x, 2.0, 0.0), // wrong
        // right: (&*a, &*b, &*c, &*d, &*e, &*f, &*g, &*h, &*i, &*j, &*k, &*l, &*m, &*n, x, 2.0),
    )?;
    let last = all.pop().expect("there are 15").into_host(&s)?;
    assert_eq!(*last, [182.0; 4]);
    Ok(())
}
