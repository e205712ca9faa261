//! All of Debian's extensions of PHP, in each way in which workers come to be. `make extensions`
//! runs it.

mod started;

#[test]
fn all_of_debians_extensions_start_serve_and_end() {
    let count = started::start_each("all-php-extensions");
    println!("{count} extensions");
}
