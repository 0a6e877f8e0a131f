//! Frontends of a Gateway: one for each listener and address, split over the backends of the listener's route.

use std::sync::Arc;

use sheave_model::{Backend, Frontend, PartTarget, Split, SplitPart};

use super::plan::{GatewayPlan, ListenerPlan};
use super::split::PartPlan;
use crate::api::objects::Objects;
use crate::net::Family;
use crate::projection::eligibility::Routes;
use crate::projection::endpoints;
use crate::projection::endpoints::interner::NameInterner;
use crate::projection::frontends::{
    FrontendInput, PlannedFrontend, PortTarget, ServiceOutput, build_frontend, load_balancer_status,
    owned_frontends, port_target,
};

/// Projects a Gateway.
pub(in crate::projection) fn build(
    input: FrontendInput<'_>,
    gateway: &GatewayPlan,
    objects: &Objects,
    names: &mut NameInterner,
) -> ServiceOutput {
    let mut output = ServiceOutput::default();
    let won = owned_frontends(input, &mut output.problems);
    for (index, listener) in gateway.listeners.iter().enumerate() {
        for family in Family::ALL {
            let here = won.iter().filter(|it| it.port == index && Family::of(it.addr.ip) == family);
            if here.clone().next().is_none() {
                continue;
            }
            let targets: Vec<Option<PortTarget>> = listener
                .parts
                .iter()
                .map(|part| target(input, part, family, objects, names, &mut output))
                .collect();
            for exposure in here {
                output.frontends.push(frontend(input, listener, &targets, *exposure, objects));
            }
        }
    }
    output.status = Some(load_balancer_status(input.plan, input.allocated, &won));
    output
}

/// The endpoints of a part; `None` if it is refused.
fn target(
    input: FrontendInput<'_>,
    part: &PartPlan,
    family: Family,
    objects: &Objects,
    names: &mut NameInterner,
    output: &mut ServiceOutput,
) -> Option<PortTarget> {
    let pool = part.target.as_ref().ok()?;
    let input = FrontendInput { plan: &pool.plan, slices: objects.slices.get(pool.plan.key()), ..input };
    let port = pool.plan.ports.first()?;
    let members = pool.plan.members(input.slices, input.cluster);
    members.iter().for_each(|member| endpoints::unreadable(member, &mut output.problems));
    Some(port_target(input, &members, (port, family), names, output))
}

fn frontend(
    input: FrontendInput<'_>,
    listener: &ListenerPlan,
    targets: &[Option<PortTarget>],
    exposure: PlannedFrontend,
    objects: &Objects,
) -> Frontend {
    let exposure = PlannedFrontend { port: 0, ..exposure };
    let nothing = PortTarget { routes: Routes::refusing(), backends: Arc::<[Backend]>::default() };
    let mut frontend = build_frontend(FrontendInput { plan: &listener.plan, ..input }, exposure, &nothing);
    let parts = listener.parts.iter().zip(targets).map(|(part, target)| {
        let target = match (&part.target, target) {
            (Ok(pool), Some(target)) => {
                let slices = objects.slices.get(pool.plan.key());
                let input = FrontendInput { plan: &pool.plan, slices, ..input };
                PartTarget::Pool(Arc::new(build_frontend(input, exposure, target)))
            }
            (Ok(_), None) => PartTarget::Refused(sheave_model::RefusedPart::BackendNotFound),
            (Err(refused), _) => PartTarget::Refused(*refused),
        };
        SplitPart { name: Arc::clone(&part.name), weight: part.weight, target }
    });
    let parts: Vec<SplitPart> = parts.collect();
    frontend.split = (!parts.is_empty()).then(|| Arc::new(Split { parts }));
    frontend
}
