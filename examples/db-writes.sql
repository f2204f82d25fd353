-- The tables that the statements of db-writes.config.json write to.
create table orders (
  order_number text not null,
  customer text not null,
  email text not null,
  total_cents bigint not null,
  placed_at timestamptz not null,
  items jsonb not null
);

create table events (
  name text not null,
  details jsonb not null
);

create table audit (
  actor text not null,
  action text not null,
  note text
);
